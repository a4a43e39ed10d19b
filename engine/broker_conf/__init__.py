"""What a 4.9.8 broker makes of its properties file (broker.conf): its keys, what it reads of each, what is in force."""
